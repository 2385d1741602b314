// Reads a stamp of four bytes out of a header.
package main

import (
	"fmt"
	"unsafe"
)

//go:noinline
func stamp(header []byte) uint32 {
	return *(*uint32)(unsafe.Pointer(&header[1])) // FAULT misaligned load
}

func main() {
	header := make([]byte, 16)
	fmt.Println(stamp(header))
}

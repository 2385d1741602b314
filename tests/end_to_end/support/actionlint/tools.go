//go:build tools

// Package tools names what go.mod is for, so that `go mod tidy` keeps it.
package tools

import _ "github.com/rhysd/actionlint/cmd/actionlint"

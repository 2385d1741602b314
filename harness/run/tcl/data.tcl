# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# What the tests send and how they look at what comes back: bytes, numbers, names, and how much of them.
#
# It owns values and comparisons, all of which follow from the seed and the tier. It refuses to talk to an endpoint.

namespace eval ::data {
    namespace export pattern random bytes256 limits strange byBytes numbered pairs difference forTier collect
    variable period
}

# Draws the order of bytes that `pattern` repeats. The runner calls it before the first test.
proc ::data::seed {seed} {
    variable period
    Sow $seed
    set values {}
    for {set value 0} {$value < 256} {incr value} {
        set values [linsert $values [random [expr {$value + 1}]] $value]
    }
    set period [binary format c* [linsert $values 128 13]]
}

# Begins the sequence of `random` that belongs to one test, whatever ran before it.
proc ::data::begin {seed testName} {
    Sow [expr {$seed ^ [zlib crc32 $testName]}]
}

# Begins a sequence of random numbers, by the low 31 bits: the range that srand takes on any width of integer.
proc ::data::Sow {number} {
    expr {srand(($number & 0x7ffffffe) + 1)}
}

# Returns length bytes that hold every byte value, NUL, CR and LF too, in an order drawn from the seed. The period is
# 257 bytes: data displaced by any power of two is then different data.
proc ::data::pattern {length} {
    variable period
    return [string range [string repeat $period [expr {$length / 257 + 1}]] 0 $length-1]
}

# A whole number from 0 to limit - 1. Every test begins its own sequence, made of the seed and the name of the test.
proc ::data::random {limit} {
    return [expr {int(rand() * $limit)}]
}

# The 256 strings of one byte, in their order as unsigned numbers.
proc ::data::bytes256 {} {
    set bytes {}
    for {set value 0} {$value < 256} {incr value} {
        lappend bytes [binary format c $value]
    }
    return $bytes
}

# Whole numbers on both sides of every limit of a packed integer, from 4 to 64 bits.
proc ::data::limits {} {
    set numbers {0 1 12 13 -1}
    foreach bits {7 8 12 13 15 16 23 24 31 32 47 53 62 63} {
        set power [expr {1 << $bits}]
        foreach number [list [expr {$power - 1}] $power [expr {-$power}] [expr {-$power - 1}]] {
            if {$number >= -(1 << 63) && $number < (1 << 63)} {
                lappend numbers $number
            }
        }
    }
    return [lsort -unique -integer $numbers]
}

# Different byte strings that have upset somebody: none, NULs, line ends, bytes that are negative as signed numbers, all
# 256 values, lengths around powers of two, and texts that are numbers or almost.
proc ::data::strange {} {
    set all [join [bytes256] ""]
    set strings [list "" \x00 \x00\x00 \r\n \n \xff \x80\x7f a\x00 a\x00b $all [string reverse $all] 0 -0 00 007 1.0 1e3 nan]
    foreach length {3 5 7 8 9 11 13 15 16 17 31 32 33 63 64 65 127 128 129 253 254 255} {
        lappend strings [string range $all 256-$length end] [string repeat \xff $length]
    }
    lappend strings {*}[limits]
    return [lsort -unique $strings]
}

# Byte strings in the order of their bytes as unsigned numbers. (lsort alone takes a NUL for two bytes.)
proc ::data::byBytes {strings} {
    return [lmap one [lsort [lmap one $strings {binary encode hex $one}]] {binary decode hex $one}]
}

# The names PREFIX0, PREFIX1 and so on.
proc ::data::numbered {prefix count} {
    set names {}
    for {set index 0} {$index < $count} {incr index} {
        lappend names $prefix$index
    }
    return $names
}

# The elements of lists in turn: pairs {a b} {1 2} is {a 1 b 2}.
proc ::data::pairs {keys values} {
    set pairs {}
    foreach key $keys value $values {
        lappend pairs $key $value
    }
    return $pairs
}

# The script's results for each value of a list, without the empty ones: what was wrong, as a rule.
proc ::data::collect {variables values script} {
    set found {}
    foreach result [uplevel 1 [list lmap $variables $values $script]] {
        if {$result ne ""} {
            lappend found $result
        }
    }
    return $found
}

# How much of something a test does, by tier. The kernel tier, on slow emulated computers, does what the quick one does.
proc ::data::forTier {quick full thorough} {
    switch -exact -- $::endpoint::told(tier) {
        full { return $full }
        thorough { return $thorough }
    }
    return $quick
}

# Says where two byte strings differ, or "" when they do not: a megabyte is not a failure message.
proc ::data::difference {actual expected} {
    if {$actual eq $expected} {
        return ""
    }
    set lengths "[string length $actual] bytes where [string length $expected] are expected"
    set at 0
    foreach one [split $actual ""] two [split $expected ""] {
        if {$one ne $two} {
            break
        }
        incr at
    }
    set here [string range $actual $at $at+15]
    set there [string range $expected $at $at+15]
    return "$lengths; at byte $at: [binary encode hex $here] where [binary encode hex $there] is expected"
}

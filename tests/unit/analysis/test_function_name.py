"""Names of C++ and Rust functions are short, and fit an id and a line."""

from __future__ import annotations

import pytest

from harness.analysis.program_traits.function_name import name_in_id, short_name


@pytest.mark.parametrize(
    ("demangled", "short"),
    [
        ("bitopCommand", "bitopCommand"),
        ("bitopCommand.constprop.0", "bitopCommand.constprop.0"),
        ("libc.so.6+0x1234", "libc.so.6+0x1234"),
        ("??", "??"),
        ("main", "main"),
        ("ns::check(int, char const*)", "ns::check"),
        ("bool ns::Table<int, std::less<int> >::insert<int>(int const&) const", "ns::Table::insert"),
        ("std::vector<int, std::allocator<int> >::operator[](unsigned long)", "std::vector::operator[]"),
        ("std::ostream& std::operator<< <std::char_traits<char> >(std::ostream&, char)", "std::operator<<"),
        ("ns::Less::operator()(int, int) const", "ns::Less::operator()"),
        ("ns::P::operator->() const", "ns::P::operator->"),
        ("operator new(unsigned int)", "operator new"),
        ("(anonymous namespace)::helper(char*)", "anonymous::helper"),
        ("main::{lambda(int)#1}::operator()(int) const", "main::lambda::operator()"),
        ("void run<main::{lambda()#2}>(main::{lambda()#2}&&)", "run"),
        ("ns::Table<char>::~Table()", "ns::Table::~Table"),
        ("f(int) [clone .part.0]", "f"),
        ("<alloc::vec::Vec<T,A> as core::ops::drop::Drop>::drop", "drop"),
        ("core::ptr::drop_in_place<alloc::string::String>", "core::ptr::drop_in_place"),
        ("sum::main", "sum::main"),
        ("std::rt::lang_start::{{closure}}", "std::rt::lang_start"),
        ("core::ops::function::impls::<impl FnOnce<A> for &F>::call_once", "core::ops::function::impls::call_once"),
    ],
)
def test_a_name_has_no_arguments(demangled: str, short: str) -> None:
    assert short_name(demangled) == short
    assert short_name(short) == short


@pytest.mark.parametrize(
    ("function", "name"),
    [
        ("bitopCommand.constprop.0", "bitopCommand.constprop.0"),
        ("libc.so.6+0x1234", "libc.so.6+0x1234"),
        ("??", "??"),
        ("ns::Table::~Table", "ns::Table::~Table"),
        ("Less::operator()", "Less::operator-call"),
        ("Table::operator<<", "Table::operator-lt-lt"),
        ("Table::operator[]", "Table::operator-index"),
        ("operator new", "operator-new"),
        ("operator&&", "operator-and-and"),
    ],
)
def test_an_id_has_no_sign_that_a_shell_interprets(function: str, name: str) -> None:
    assert name_in_id(function) == name

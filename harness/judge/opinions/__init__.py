"""Compares what a cell showed with further runs of its failed tests: on the native build, and in another memory order.

It may import `causality` and everything below. Begin with `second_opinion`, then `in_order`.
"""

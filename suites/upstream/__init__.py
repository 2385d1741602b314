"""The suite of upstream's own tests."""

"""The canary suite."""

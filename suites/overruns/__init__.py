"""What a server does where each of its blocks of memory ends before a guarded page."""

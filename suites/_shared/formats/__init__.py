"""Independent readers of what servers write: RDB files, DUMP payloads and the compact encodings inside them."""

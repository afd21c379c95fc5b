"""What we know about SGLang: pure, no I/O. Memory arithmetic, flags by version, log parsing, failure signatures."""

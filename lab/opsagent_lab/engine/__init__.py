"""A simulated SGLang: the argument rules, the memory arithmetic, the log lines and the HTTP answers of the real
one, in our own code.
"""

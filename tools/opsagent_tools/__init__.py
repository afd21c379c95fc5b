"""What opsagent does to hosts: one file per typed tool, the hosts they act on, and what we know about SGLang."""

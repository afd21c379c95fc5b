"""Where calls act: over SSH (`ssh`), on this machine (`local`), in a container of another host (`container`), and their
names (`inventory`). All satisfy `opsagent_tools.host.Host`. Importing this package imports neither fabric nor paramiko.
"""

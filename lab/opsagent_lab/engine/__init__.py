"""A simulated SGLang: argument rules, memory arithmetic, log lines and HTTP answers of the real one, in our own code.

What a scenario can set, in its table `engine`:

* `load_mib_s`: how fast a disk delivers weights (default 1200 MiB/s);
* `first_answer_s`: how long the first answer to a client takes longer than the others (kernels for new shapes);
* `oom_kill`: how many launches lose a scheduler to the kernel's OOM killer;
* `orphans`: true when schedulers survive their parent and keep their memory;
* `needs_nvcc`: true when a launch with the FlashInfer backend compiles, and so needs /usr/local/cuda/bin/nvcc.

The rest follows from the state of the hosts: cards (`p2p`, memory, what other processes hold), environments (`arch_list`,
the note `kernel_archs`, versions), model directories (missing, short or foreign files), ports. `catalogue.place` puts a
model on a host, `preloaded.start` a server that has been up for long; the tables `uv` and `hub` are read by
`programs/uv.py` and `hub.py`.
"""

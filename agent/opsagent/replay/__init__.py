"""A recorded run again, without hosts and without a model: the loop really runs, everything around it is recorded."""

"""What a device needs of us: a stream for every run, transfers to it, and private functions of torch."""

"""The options of commands that can train on a cluster: --on, --threads, --gpu."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from acenode.cli.argument_types import integer
from acenode.errors import UserError

if TYPE_CHECKING:
    from acenode.execution.cluster.ray_cluster import RayCluster


def add_cluster_arguments(parser: ArgumentParser) -> None:
    """Add the options to the parser of a command."""
    parser.add_argument("--on", metavar="PLACE", help="where to train: ray starts a local Ray for this command, "
                        "ray:ADDRESS joins a cluster (auto: the one that this machine belongs to)")
    parser.add_argument("--threads", type=integer, metavar="N", help="with --on ray: CPU threads of each run")
    parser.add_argument("--gpu", type=float, metavar="SHARE", help="with --on ray: share of a GPU of each run, if the "
                        "cluster has GPUs (default: 0.25)")


def cluster_of(options: Namespace, *, workers: int | None = None, several: bool = False) -> RayCluster | None:
    """Return the cluster that the options name, which is not started yet; None without --on.

    Args:
        options: of the command.
        workers: runs at a time, if the user has chosen that.
        several: the command trains several runs.
    """
    if options.on is None:
        if options.threads is not None or options.gpu is not None:
            raise UserError("--threads and --gpu apply to runs on a cluster: add --on ray")
        return None
    from acenode.execution.cluster.address import check_name
    from acenode.execution.cluster.ray_cluster import GPU_SHARE, QUEUE_THREADS, RayCluster, address_of, check_device
    from acenode.execution.devices import own_cores

    address = address_of(options.on)
    check_device(options.device)
    if options.threads is not None and not 1 <= options.threads <= 1024:
        raise UserError(f"--threads takes a number from 1 to 1024, not {options.threads}")
    if options.gpu is not None and not 0 < options.gpu <= 1:
        raise UserError(f"--gpu takes a share above 0 and up to 1, not {options.gpu:g}")
    import torch

    have = torch.get_num_threads()
    threads = options.threads or (have if not several else max(1, have // workers) if workers and address is None
                                  else min(QUEUE_THREADS, have))
    cpus = workers * threads if workers is not None else None
    if address is None and threads > (cpus or len(own_cores())):
        raise UserError(f"this machine has too few CPUs for a run with {threads} threads ({len(own_cores())}): use a "
                        "smaller --threads")
    cluster = RayCluster(address, threads=threads, gpu=options.gpu or GPU_SHARE, cpus=cpus)
    check_name(address)
    return cluster


def announce(cluster: RayCluster, options: Namespace) -> None:
    """Print that Ray is being started or joined, which takes a while, unless the command prints JSON."""
    from acenode.execution.cluster.ray_cluster import START_SECONDS

    if not options.json:
        print("starting a local Ray" if cluster.address is None else
              f"joining {cluster.address} (waits up to {START_SECONDS:.0f} s)", file=sys.stderr, flush=True)

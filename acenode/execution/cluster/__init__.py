"""Execute runs on a Ray cluster: `RayCluster` in ray_cluster.py is all that other code uses.

    ray_cluster.py   the launcher's side: starts the driver process and asks it to train runs
    address.py       checks whether an address can be reached, before Ray tries it
    driver.py        the program of the driver process: starts or joins Ray, submits a task for each run
    task.py          the task, which a Ray worker executes: trains the run, in contact with the folder keeper
    contact.py       that contact: sends files, receives stop requests
    folder_keeper.py an actor on the machine of the driver: reads and writes the run directories there
    probe.py         decides whether a worker sees the run directory itself
    changed_files.py what has changed in a run directory since it was last sent
    follow.py        executes a single run and reports its progress, for the command line
    own_folder.py    temporary folders that do not pile up
    size.py          how large a cluster is and how many runs fit

Only processes of Ray import Ray, so that it stays optional.
"""

"""Execute runs on a Ray cluster: `RayCluster` in ray_cluster.py is all that other code uses.

    ray_cluster.py   the launcher's side: checks addresses, starts the driver process and asks it to train runs
    driver.py        the program of the driver process: starts or joins Ray, submits a task for each run
    worker.py        the task, which a Ray worker executes: trains the run, in contact with the folder keeper
    files.py         the folder keeper and what it exchanges with workers

Only processes of Ray import Ray, so that it stays optional.
"""

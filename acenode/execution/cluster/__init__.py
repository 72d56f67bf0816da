"""Execute runs on a Ray cluster: `RayCluster` in ray_cluster.py is all that other code uses.

    ray_cluster.py   the launcher's side: checks addresses, starts the driver process and asks it to train runs
    driver.py        the program of the driver process: starts or joins Ray, submits a task for each run
    files.py         the task, which a Ray worker executes, and the folder keeper with which it exchanges files

Only processes of Ray import Ray, so that it stays optional.
"""

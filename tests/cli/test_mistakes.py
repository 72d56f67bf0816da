"""What a person can get wrong on the command line: one line on stderr that says what to do, and exit code 2."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import command

from acenode.cli.parser import ACTIONS

# a command without `acenode`, and what its error says
MISTAKES = """
 => COMMAND
fly => invalid choice
train imagenet --method ace => no experiment 'imagenet': choose one of mnist
train mnist => --method
train mnist --method resnet --set attention=fixed => attention does not apply to resnet
train mnist --method ace --set lr=1 => no setting 'lr': ace in mnist has epochs, batch_size, learning_rate
train ushcn --method ace --set sample=ou --set sample=climate => sample is given twice
train mnist --method ace --set epochs => KEY=VALUE
train mnist --method ace --seed -3 => seed must be at least 0
train mnist --method ace --seed 1_0 => '1_0' is not a whole number
train mnist --method ace --epochs 0 => epochs must be at least 1
train mnist --method ace --set crop=9 => crop must be at most 8
train mnist --method ace --set solver=explicit_adams --set gradient=checkpointed => use gradient adjoint
train mnist --method ace --data full => run `acenode data get mnist`
train mnist --method ace --data half => invalid choice
settings imagenet => no experiment 'imagenet'
resume nothing => no run 'nothing'
resume ../up => is not a run id
stop nothing => no run 'nothing'
show last => start one with `acenode train`
export last --to pdf => no run in
export last --to csv --out '' => it needs the name of a file or folder
data get => name the data set
data get imagenet => imagenet
table imagenet => no experiment
reproduce imagenet => the paper has no table 'imagenet': choose one of mnist, svhn
reproduce --seeds 0 => --seeds must be at least 1
reproduce --minutes 0 => --minutes must be above 0
reproduce --preset best => invalid choice
reproduce --workers 0 => --workers must be at least 1
reproduce --epochs 0 => --epochs must be at least 1
study new x => name an experiment
study new x mnist => a study compares 2 to
study new x mnist --vary attention=fixed => --vary takes KEY=VALUE,VALUE
study new x mnist --preset sizes => has no preset 'sizes': choose one of
study new x mnist --preset size --vary size=small,large => exclude each other
study new x mnist --preset size --equal => name it with --from
study new x mnist --preset size --baseline 9 => there is no group '9': choose a number from 1 to 4
study new x --from y => there is no study 'y'
study new a/b mnist --preset size => cannot be the name of a study
study show x => there is no study 'x'
study run x --workers 0 => --workers must be at least 1
study delete x => there is no study 'x'
search mnist --method ace --over learning_rate=log:0..1 => a logarithmic range must start above 0
search mnist --method ace --over learning_rat=0..1 => did you mean learning_rate?
search mnist --method resnet --over rtol=1e-4..1e-2 => rtol does not apply to resnet in mnist
search mnist --over learning_rate=0.1,0.2 => name a method with --method: resnet
search mnist --method ace => name the settings to search with --over
search nothing --method ace --over learning_rate=0.1,0.2 => nothing
search mnist --method ace --over learning_rate=0.1,0.2 --set learning_rate=1 => is searched and held equal
search mnist --method ace --over learning_rate=0.1,0.2 --trials 0 => 1 to 100000 trials, not 0
search mnist --method ace --over learning_rate=0.1,0.2 --name a/b => cannot be the name
search mnist x --method ace => 'x' is not expected here
search show => name the search: `acenode search show NAME`
search show nothing => there is no search 'nothing'
search stop nothing => there is no search 'nothing'
search winner nothing => there is no search 'nothing'
search list --over x => --over belongs to a new search
search show x --trials 3 => --trials belongs to a new search and to `search resume`
search resume x --seeds 0-2 => --seeds belongs to `search winner`
bench => the following arguments are required: COMMAND
bench gpu --families images,words => no family 'words': choose from images, baselines, series, windows, sporadic
bench ushcn --device cuda => unrecognized arguments: --device cuda
bench epoch --seeds one => seeds
bench scale --parts tail => there is no part 'tail': choose from rates, head, search, trials
bench together --train physionet/ace => EXPERIMENT/METHOD:EPOCHS
bench together --each 0 => 1 to 64 runs are trained together, not 0
bench together --ways fibres => there is no way 'fibres'
bench together --device cpu --ways mps => mps needs a CUDA device
"""
WITHOUT_GPU = """
train mnist --method ace --device cuda => no CUDA device here: use --device cpu
bench gpu => bench gpu needs a CUDA device, and there is none here
"""


@pytest.mark.parametrize("line", [
    *MISTAKES.strip("\n").splitlines(),
    *(f"search mnist --method ace --over learning_rate=0.1,0.2 --name {name} => a search cannot have the name {name!r}"
      for name in ACTIONS),
    *(pytest.param(line, marks=pytest.mark.skipif("__import__('torch').cuda.is_available()"))
      for line in WITHOUT_GPU.strip().splitlines())])
def test_a_mistake_is_one_line_and_exit_code_2(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACENODE_DATA", str(tmp_path / "empty"))
    words, message = line.split(" => ")
    (error,) = command(words, 2).splitlines()
    assert error.startswith("acenode: ")
    assert message in error
    assert not (tmp_path / "runs" / "searches").exists()

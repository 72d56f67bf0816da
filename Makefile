# Everything the lab needs is set up in .venv by the first command that wants it.
PYTHON ?= python3
VENV   := .venv
READY  := $(VENV)/.ready

.PHONY: app demo test test-long fuzz soak lint docs check-wheel setup clean

app: $(READY)
	$(VENV)/bin/acenode app

demo: $(READY)
	$(VENV)/bin/acenode demo

test: $(READY) lint
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest -n 2 --dist loadfile

# What takes longer: screenshots of every page, training and resuming in a browser, benchmarks end to end.
test-long: $(READY)
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest -n 2 --dist loadfile -m long

# Thousands of generated cases of bad input: prints the counts of tracebacks, hangs and empty pages.
fuzz: $(READY)
	OMP_NUM_THREADS=1 $(VENV)/bin/python tests/faults/fuzz.py --cases $(or $(CASES),5000) --seed $(or $(SEED),0)

# Four runs at a time with watchers, kills, deletions and a disk that is nearly full.
soak: $(READY)
	$(VENV)/bin/python tests/faults/soak.py --minutes $(or $(MINUTES),30) --seed $(or $(SEED),0)

lint: $(READY)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy

docs: $(READY)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict --quiet

# Build the wheel and use it from an empty environment and folder; installs torch once more.
check-wheel: $(READY)
	$(VENV)/bin/python tests/check_wheel.py

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	# torch by itself first, so that the pinned build is there before anything else asks for one
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	touch $@

clean:
	rm -rf $(VENV) *.egg-info .mypy_cache .ruff_cache .pytest_cache

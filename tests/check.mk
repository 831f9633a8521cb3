# SPDX-License-Identifier: Apache-2.0
# make check: unit tests, the man pages, then the tests on a private Slurm. Every part adds its counts to one last line.

.PHONY: check check-unit check-cluster
check: deps
	@$(MAKE) --no-print-directory -j$(JOBS) all unit-tests
	@BUILD=$(BUILD) tests/run-all unit cli man build cluster

check-unit: all unit-tests
	@BUILD=$(BUILD) tests/run-all unit cli man build

check-cluster: all unit-tests
	@BUILD=$(BUILD) tests/run-all cluster

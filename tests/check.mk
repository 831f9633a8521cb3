# SPDX-License-Identifier: Apache-2.0
# make check: unit tests, the man pages, then the tests on a private Slurm. Every part adds its counts to one last line.

.PHONY: check check-unit check-cluster
check: all $(UNIT_TESTS)
	@BUILD=$(BUILD) tests/run-all unit man cluster

check-unit: all $(UNIT_TESTS)
	@BUILD=$(BUILD) tests/run-all unit man

check-cluster: all
	@BUILD=$(BUILD) tests/run-all cluster

#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A few faults of `chaos`, always the same ones; `make chaos` goes on for hundreds.
MM_CHAOS_STEPS=160 exec "$(dirname "$(readlink -f "$0")")/chaos" 6 4 kill crash nic xid two agent flap preempted

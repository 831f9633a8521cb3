// SPDX-License-Identifier: Apache-2.0
// What a killed slurmstepd leaves in slurmd's spool folder. Its PMIx server listens on stepd.slurm.pmix.JOB.STEP there, and only a stepd that
// ends by itself removes it; a requeued run begins with step 0 again and would fail: "Cannot bind() UNIX socket: Address already in use".
#pragma once

#include <string>

namespace mm::agent {

// SlurmdSpoolDir as configured, with %n (node name) and %h (host name up to the first dot) filled in.
std::string spool_folder(const std::string& configured, const std::string& node, const std::string& host);
// Removes the PMIx sockets of all steps of `job`; returns how many. A folder that cannot be read holds none.
int remove_pmix_sockets(const std::string& folder, const std::string& job);

}  // namespace mm::agent

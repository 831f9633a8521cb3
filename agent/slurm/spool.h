// SPDX-License-Identifier: Apache-2.0
// What a killed slurmstepd leaves behind: in slurmd's spool folder the socket of its PMIx server, stepd.slurm.pmix.JOB.STEP, and that
// server's folder, pmix.JOB.STEP; in PMIxCliTmpDirBase, else TmpFS, the folder of its clients, spmix_appdir_UID_JOB.STEP. Only a stepd that
// ends by itself removes them; a requeued run begins with step 0 again and would fail: "Cannot bind() UNIX socket: Address already in use",
// "Cannot create server lib tmpdir: File exists".
#pragma once

#include <string>

namespace mm::agent {

// A folder as configured, with %n (node name) and %h (host name up to the first dot) filled in.
std::string spool_folder(const std::string& configured, const std::string& node, const std::string& host);
// Removes what there is of these in a folder, for all steps of `job`; returns how many. A folder that cannot be read holds none.
int remove_pmix_leftovers(const std::string& folder, const std::string& job);

}  // namespace mm::agent

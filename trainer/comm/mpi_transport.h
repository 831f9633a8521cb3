// SPDX-License-Identifier: Apache-2.0
// The transport over MPI. MPI's own headers stay in mpi_transport.cc.
#pragma once

#include <memory>

#include "trainer/comm/transport.h"

namespace mm::comm {

// Starts MPI on the calling thread, the only one that may use the transport. The other ranks must come within two minutes, or
// the process says so and ends with status 76: MPI's own wait has no deadline and cannot be left.
std::unique_ptr<Transport> mpi_transport();
// Ends MPI where it was started; a process whose peers do not come within 30 s ends with `status`.
void finalize_mpi(int status);

}  // namespace mm::comm

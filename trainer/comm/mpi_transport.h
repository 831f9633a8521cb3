// SPDX-License-Identifier: Apache-2.0
// The transport over MPI. MPI's own headers stay in mpi_transport.cc.
#pragma once

#include <memory>

#include "trainer/comm/transport.h"

namespace mm::comm {

// Starts MPI on the calling thread, the only one that may use the transport.
std::unique_ptr<Transport> mpi_transport();
// Ends MPI where it was started.
void finalize_mpi();

}  // namespace mm::comm

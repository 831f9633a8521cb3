// SPDX-License-Identifier: Apache-2.0
// What a rank holds of the model, and with whom: the layout's stages and slices applied to the model's units.
#pragma once

#include "trainer/loop/setup.h"
#include "trainer/model/image_features.h"
#include "trainer/model/param.h"
#include "trainer/model/partition.h"
#include "trainer/parallel/mesh.h"
#include "trainer/parallel/schedule.h"

namespace mm::loop {

std::vector<model::Chunk> chunks_of(const Setup& setup);  // of this rank of the decoder
model::Placement placement(const Setup& setup);
// The ranks of the tower in the groups that join them to the decoder's first stages.
model::Makers makers(const Setup& setup);
comm::Comm& group_of(const parallel::Mesh& mesh, model::Holders holders);
parallel::ScheduleKind schedule_kind(const Job& job);

}  // namespace mm::loop

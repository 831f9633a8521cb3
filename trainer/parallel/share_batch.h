// SPDX-License-Identifier: Apache-2.0
// From the rank that reads to all ranks of its replica.
#pragma once

#include "trainer/model/micro_batch.h"
#include "trainer/parallel/mesh.h"

namespace mm::parallel {

// Collective over mesh.replica, whose rank 0 has the whole micro-batch. Afterwards every rank has it. Its pixels lie on the ranks
// of the first stage: dealt out by part_of(images, ranks of encoder_share), or on all of them the whole, where these cut the
// tower itself; the others have none. Where the tower has its own ranks they alone have pixels. Memory is used again.
enum class Pixels { dealt, whole };
void share_batch(const Mesh& mesh, model::MicroBatch& batch, Pixels pixels = Pixels::dealt);
// At the same time on every rank of the encoder: of that micro-batch of a replica of the decoder, how many pictures it has, and
// those that the rank's replica of the encoder works on, part_of(images, replicas of the encoder).
void receive_pictures(const Mesh& mesh, int replica, model::MicroBatch& batch);

}  // namespace mm::parallel

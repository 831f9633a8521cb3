// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/share_batch.h"

#include <array>

namespace mm::parallel {
namespace {

// Whole vectors of numbers, of any type, as bytes.
template <class T>
comm::Pending begin_broadcast(comm::Comm& comm, std::vector<T>& numbers) {
  return comm.begin_broadcast(reinterpret_cast<uint8_t*>(numbers.data()), static_cast<int64_t>(numbers.size() * sizeof(T)), 0);
}

// Begun on all ranks of the tower; rank 0 cuts off what is not its own only after all has been sent.
void deal_pixels(comm::Comm& tower, model::MicroBatch& batch) {
  const comm::Range own = comm::part_of(batch.images, tower.rank(), tower.size());
  if (tower.rank() != 0) {
    batch.pixels.resize(static_cast<size_t>(own.size() * batch.picture_bytes));
    tower.begin_receive(0, batch.pixels.data(), own.size() * batch.picture_bytes, 0).wait();
  } else {
    std::vector<comm::Pending> sends;
    for (int r = 1; r < tower.size(); ++r) {
      const comm::Range part = comm::part_of(batch.images, r, tower.size());
      sends.push_back(
          tower.begin_send(r, batch.pixels.data() + part.begin * batch.picture_bytes, part.size() * batch.picture_bytes, 0));
    }
    for (comm::Pending& send : sends) send.wait();
    batch.pixels.resize(static_cast<size_t>(own.size() * batch.picture_bytes));
  }
  batch.first_picture = own.begin;
}

// From the first rank of the decoder's replica to all of the encoder.
void send_pictures(const Mesh& mesh, comm::Comm& bridge, model::MicroBatch& batch) {
  const std::array<int64_t, 2> sizes{batch.images, batch.picture_bytes};
  const int encoders = mesh.encoder.world_size(), first = bridge.size() - encoders;
  std::vector<comm::Pending> sends;
  for (int e = 0; e < encoders; ++e) {
    const comm::Range part = comm::part_of(batch.images, mesh.encoder.coordinates(e).dp, mesh.encoder.dp);
    sends.push_back(bridge.begin_send(first + e, reinterpret_cast<const uint8_t*>(sizes.data()), sizeof sizes, 0));
    sends.push_back(bridge.begin_send(first + e, batch.pixels.data() + part.begin * batch.picture_bytes,
                                      part.size() * batch.picture_bytes, 1));
  }
  for (comm::Pending& send : sends) send.wait();
  batch.pixels.clear();
}

// The same to all.
void copy_pixels(comm::Comm& tower, model::MicroBatch& batch) {
  batch.pixels.resize(static_cast<size_t>(batch.images * batch.picture_bytes));
  tower.broadcast(batch.pixels.data(), static_cast<int64_t>(batch.pixels.size()), 0);
}

}  // namespace

void share_batch(const Mesh& mesh, model::MicroBatch& batch, Pixels pixels) {
  comm::Comm& replica = *mesh.replica;
  comm::Comm* const bridge = mesh.bridge();
  if (replica.size() == 1 && !bridge) return;
  std::array<int64_t, 6> sizes{};
  if (replica.rank() == 0)
    sizes = {static_cast<int64_t>(batch.starts.size()),
             static_cast<int64_t>(batch.ids.size()),
             static_cast<int64_t>(batch.image_rows.size()),
             static_cast<int64_t>(batch.labels.size()),
             batch.images,
             batch.picture_bytes};
  replica.broadcast(reinterpret_cast<uint8_t*>(sizes.data()), sizeof sizes, 0);
  if (replica.rank() != 0) {
    batch.starts.resize(static_cast<size_t>(sizes[0]));
    batch.ids.resize(static_cast<size_t>(sizes[1]));
    batch.image_rows.resize(static_cast<size_t>(sizes[2]));
    batch.label_rows.resize(static_cast<size_t>(sizes[3]));
    batch.labels.resize(static_cast<size_t>(sizes[3]));
    batch.images = sizes[4];
    batch.picture_bytes = sizes[5];
    batch.first_picture = 0;
    batch.pixels.clear();
  }
  std::array<comm::Pending, 5> parts{begin_broadcast(replica, batch.starts), begin_broadcast(replica, batch.ids),
                                     begin_broadcast(replica, batch.image_rows), begin_broadcast(replica, batch.label_rows),
                                     begin_broadcast(replica, batch.labels)};
  if (mesh.encoder_share) (pixels == Pixels::dealt ? deal_pixels : copy_pixels)(*mesh.encoder_share, batch);
  if (bridge && mesh.reads()) send_pictures(mesh, *bridge, batch);
  for (comm::Pending& part : parts) part.wait();
}

void receive_pictures(const Mesh& mesh, int replica, model::MicroBatch& batch) {
  comm::Comm& bridge = *mesh.bridges[static_cast<size_t>(replica)];
  std::array<int64_t, 2> sizes{};
  bridge.begin_receive(0, reinterpret_cast<uint8_t*>(sizes.data()), sizeof sizes, 0).wait();
  batch.images = sizes[0];
  batch.picture_bytes = sizes[1];
  const comm::Range own = comm::part_of(batch.images, mesh.at.dp, mesh.layout.dp);
  batch.first_picture = own.begin;
  batch.pixels.resize(static_cast<size_t>(own.size() * batch.picture_bytes));
  bridge.begin_receive(0, batch.pixels.data(), own.size() * batch.picture_bytes, 1).wait();
}

}  // namespace mm::parallel

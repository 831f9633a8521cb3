// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/share_batch.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/trainer/comm/harness.h"
#include "trainer/comm/trace.h"

namespace mm::parallel {
namespace {

model::MicroBatch batch_of(int dp, int64_t rows, int64_t images) {
  model::MicroBatch batch;
  if (rows > 0) batch.starts.push_back(rows);
  for (int64_t i = 0; i < rows; ++i) batch.ids.push_back(static_cast<int32_t>(i * 7 + dp));
  for (int64_t i = 0; i < images * 3; ++i) batch.image_rows.push_back(i);
  for (int64_t i = 1; i < rows; i += 4) {
    batch.label_rows.push_back(i);
    batch.labels.push_back(static_cast<int32_t>(i + dp));
  }
  batch.images = images;
  batch.picture_bytes = 5 * 5 * 3;
  batch.pixels.resize(static_cast<size_t>(images * batch.picture_bytes));
  std::iota(batch.pixels.begin(), batch.pixels.end(), static_cast<uint8_t>(dp));
  return batch;
}

// Batches one after another into the same memory: large, without an image, empty, with one image and one row.
TEST(ShareBatch, AllRanksHaveItAndTheTowersRanksTheirPictures) {
  const std::pair<int64_t, int64_t> sizes[] = {{900, 7}, {40, 0}, {0, 0}, {1, 1}, {333, 3}};
  for (const Layout& layout : {Layout{1, 1, 1, 1}, Layout{2, 1, 2, 2}, Layout{1, 2, 1, 3}, Layout{2, 2, 2, 1}}) {
    std::vector<std::vector<comm::Traced>> traces(static_cast<size_t>(layout.world_size()));
    comm::on_threads(layout.world_size(), [&](comm::Comm& world) {
      const Mesh mesh = make_mesh(world, layout);
      world.start_trace();
      model::MicroBatch batch;
      for (const auto& [rows, images] : sizes) {
        const model::MicroBatch whole = batch_of(mesh.at.dp, rows, images);
        if (mesh.replica->rank() == 0) batch = whole;
        share_batch(mesh, batch);
        EXPECT_EQ(batch.starts, whole.starts);
        EXPECT_EQ(batch.ids, whole.ids);
        EXPECT_EQ(batch.image_rows, whole.image_rows);
        EXPECT_EQ(batch.label_rows, whole.label_rows);
        EXPECT_EQ(batch.labels, whole.labels);
        EXPECT_EQ(batch.images, whole.images);
        EXPECT_EQ(batch.picture_bytes, whole.picture_bytes);
        comm::Range own;
        if (mesh.encoder_share) own = comm::part_of(images, mesh.encoder_share->rank(), mesh.encoder_share->size());
        EXPECT_EQ(batch.pictures(), own.size());
        EXPECT_EQ(batch.first_picture, own.begin);
        EXPECT_TRUE(
            std::equal(batch.pixels.begin(), batch.pixels.end(), whole.pixels.begin() + own.begin * whole.picture_bytes));
      }
      traces[static_cast<size_t>(world.rank())] = world.take_trace();
    });
    EXPECT_EQ(comm::first_difference(traces), "");
  }
}

// Of every replica's batches the encoder's ranks have their pictures; the decoder's have none.
TEST(ShareBatch, AnEncoderOnItsOwnRanksHasThePicturesOfAllReplicas) {
  const std::pair<int64_t, int64_t> sizes[] = {{900, 7}, {40, 0}, {0, 0}, {1, 1}, {333, 3}};
  for (const auto& [layout, tower] : {std::pair{Layout{1, 1, 1, 1}, Layout{1, 1, 1}}, {{2, 1, 2, 1}, {2, 1, 2}}, {{1, 2, 1, 2}, {1, 1, 3}}}) {
    const Layout decoder = layout, encoder = tower;
    std::vector<std::vector<comm::Traced>> traces(static_cast<size_t>(decoder.world_size() + encoder.world_size()));
    comm::on_threads(static_cast<int>(traces.size()), [&](comm::Comm& world) {
      const Mesh mesh = make_mesh(world, decoder, encoder);
      world.start_trace();
      std::vector<model::MicroBatch> batches(static_cast<size_t>(decoder.dp));
      for (const auto& [rows, images] : sizes)
        for (int d = 0; d < decoder.dp; ++d) {
          if (!mesh.encodes && mesh.at.dp != d) continue;
          const model::MicroBatch whole = batch_of(d, rows, images);
          model::MicroBatch& batch = batches[static_cast<size_t>(d)];
          if (mesh.reads()) batch = whole;
          mesh.encodes ? receive_pictures(mesh, d, batch) : share_batch(mesh, batch);
          EXPECT_EQ(batch.images, whole.images);
          if (!mesh.encodes) {
            EXPECT_EQ(batch.ids, whole.ids);
            EXPECT_EQ(batch.image_rows, whole.image_rows);
            EXPECT_TRUE(batch.pixels.empty());
            continue;
          }
          const comm::Range own = comm::part_of(images, mesh.at.dp, encoder.dp);
          EXPECT_EQ(batch.pictures(), own.size());
          EXPECT_EQ(batch.first_picture, own.begin);
          EXPECT_TRUE(std::equal(batch.pixels.begin(), batch.pixels.end(), whole.pixels.begin() + own.begin * whole.picture_bytes));
        }
      traces[static_cast<size_t>(world.rank())] = world.take_trace();
    });
    EXPECT_EQ(comm::first_difference(traces), "");
  }
}

}  // namespace
}  // namespace mm::parallel

// SPDX-License-Identifier: Apache-2.0
// Pictures of odd sizes and kinds, decoded here and by Pillow.
#include <png.h>

#include <cstdlib>

#include "common/files.h"
#include "common/process.h"
#include "tests/trainer/data/support.h"
#include "trainer/data/image/image.h"

namespace mm::data {
namespace {

using namespace test;

TEST(Decode, OddSizesAreThoseOfPillow) {
  if (!run_command({"/usr/bin/python3", "-c", "import PIL"}, std::chrono::seconds(60)).ok()) GTEST_SKIP() << "python3-pil is not installed";
  const TemporaryFolder folder;
  std::vector<std::string> files;
  for (const auto& [w, h] : {std::pair{1, 1}, {1, 17}, {17, 1}, {3, 5}, {15, 33}, {16, 16}, {97, 61}, {333, 251}})
    for (const std::string& file : {make_jpeg(gradient(w, h), 93), make_jpeg(gradient(w, h), 70, 6), make_jpeg(gradient(w, h), 70, 7),
                                    make_jpeg_of(w, h, 1, std::vector<uint8_t>(static_cast<size_t>(w * h), 80), 90),
                                    encode_png(gradient(w, h)), make_png({w, h, 8, PNG_COLOR_TYPE_RGB, true}, gradient(w, h).rgb),
                                    make_webp(gradient(w, h), 255), encode_jpeg(gradient(w, h), 60)}) {
      files.push_back(file);
      write(folder.path("in/" + std::to_string(1000 + files.size())), file);
    }
  const char* script = R"(
import sys, glob
from PIL import Image, ImageOps
with open(sys.argv[2], 'wb') as out:
  for f in sorted(glob.glob(sys.argv[1] + '/*')):
    im = ImageOps.exif_transpose(Image.open(f)).convert('RGB')
    out.write(b'%d %d\n' % im.size + im.tobytes())
)";
  const CommandResult result =
      run_command({"/usr/bin/python3", "-c", script, folder.path("in"), folder.path("out")}, std::chrono::seconds(60));
  ASSERT_TRUE(result.ok()) << result.err;
  const std::string all = read_file(folder.path("out"));
  size_t at = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    const Image image = decode_image(files[i]);
    const std::string size = std::to_string(image.width) + " " + std::to_string(image.height) + "\n";
    ASSERT_EQ(all.substr(at, size.size()), size) << i;
    at += size.size();
    for (size_t k = 0; k < image.rgb.size(); ++k, ++at) ASSERT_NEAR(image.rgb[k], static_cast<uint8_t>(all[at]), 1) << i << " at " << k;
  }
  EXPECT_EQ(at, all.size());
}

}  // namespace
}  // namespace mm::data

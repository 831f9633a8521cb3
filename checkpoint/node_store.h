// SPDX-License-Identifier: Apache-2.0
// Copies of rank files on this node's own disk: FOLDER/RUN/step-0000012.NAME/ with those of this node's ranks, those that
// another node has given, and the manifest of the whole step. RUN is a hash of the run's path. Private until the manifest is
// there, as on the shared file system; the folder of the run belongs to this user and is closed to others.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "checkpoint/source.h"

namespace mm::checkpoint {

class NodeStore {
 public:
  // Throws Error where the folder cannot be made, or belongs to somebody else.
  NodeStore(const std::string& folder, const std::string& run);

  std::string committed_folder(int64_t step, const std::string& name) const;
  // The folder of a save under way, made where it is missing.
  std::string private_folder(int64_t step, const std::string& name) const;
  // Publishes it. Other ranks of the node may do so at the same time.
  void commit(int64_t step, const std::string& name, const std::string& manifest) const;
  // After the commit of `step`: removes all but the newest `keep` steps up to it, later ones, which are of a history that was
  // given up, and private folders of earlier saves. Another rank may have begun the next save meanwhile.
  void remove_old(int keep, int64_t step) const;
  // Before anybody saves: removes private folders of those who died.
  void remove_private() const;

  struct Copy {
    int64_t step = 0;
    std::string name;
    int rank = 0;
    std::string path;
  };
  std::vector<Copy> list() const;
  std::string read_manifest(int64_t step, const std::string& name) const;

 private:
  std::string folder_;
};

}  // namespace mm::checkpoint

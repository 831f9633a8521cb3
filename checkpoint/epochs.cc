// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/epochs.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "checkpoint/folder.h"
#include "checkpoint/io.h"

namespace mm::checkpoint {
namespace {

using nlohmann::json;

constexpr std::string_view prefix = "epoch-";
constexpr uint64_t most_claim_bytes = 4096;
constexpr size_t always_kept = 8;

std::string claim_name(int64_t epoch) {
  return fmt::format("{}{:07}", prefix, epoch);
}

std::optional<int64_t> epoch_of_name(const std::string& name) {
  if (!name.starts_with(prefix)) return std::nullopt;
  int64_t epoch = 0;
  const char* end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + prefix.size(), end, epoch);
  if (error != std::errc() || rest != end || epoch < 1 || claim_name(epoch) != name) return std::nullopt;
  return epoch;
}

std::string this_process() {
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  return fmt::format("{}, process {}", host, ::getpid());
}

Claim read_claim(const std::string& path, int64_t epoch) {
  Claim c{epoch, std::nullopt, "an unreadable claim"};
  std::string text;
  try {
    text = io::read_file(path, most_claim_bytes);
  } catch (const io::Failure& e) {
    if (e.is_of_content()) return c;
    throw;
  }
  const json j = json::parse(text, nullptr, false);
  if (!j.is_object() || !j.contains("resumed_from") || !j.contains("who")) return c;
  if (j["resumed_from"].is_number_integer()) c.resumed_from = j["resumed_from"].get<int64_t>();
  if (j["who"].is_string()) c.who = j["who"].get<std::string>();
  return c;
}

// A claim whose point lies at or after that of a later one gives up nothing that the later one does not. The newest ones stay
// all the same: a name that is free again could be taken by a writer that has not seen it in use.
void remove_meaningless(const std::string& checkpoints) {
  try {
    const std::vector<Claim> claims = list_claims(checkpoints);
    int64_t least = INT64_MAX;
    for (size_t i = claims.size(); i-- > 0;) {
      const bool recent = i + always_kept >= claims.size();
      if (!recent && claims[i].resumed_from.value_or(INT64_MAX) >= least)
        io::remove_tree(checkpoints + "/" + claim_name(claims[i].epoch));
      else
        least = std::min(least, claims[i].resumed_from.value_or(INT64_MAX));
    }
  } catch (const io::Failure&) {
    // They do no harm.
  }
}

}  // namespace

std::vector<Claim> list_claims(const std::string& checkpoints) {
  std::vector<Claim> claims;
  for (const std::string& name : io::list_folder(checkpoints)) {
    if (const auto epoch = epoch_of_name(name)) claims.push_back(read_claim(checkpoints + "/" + name, *epoch));
  }
  std::sort(claims.begin(), claims.end(), [](const Claim& a, const Claim& b) { return a.epoch < b.epoch; });
  return claims;
}

int64_t claim_epoch(const std::string& checkpoints, std::optional<int64_t> resumed_from) {
  const json content = {{"resumed_from", resumed_from ? json(*resumed_from) : json()}, {"who", this_process()}};
  const std::string temporary = checkpoints + "/.claim-" + new_writer();
  io::write_file(temporary, content.dump() + "\n");
  int64_t epoch = 0;
  try {
    // Taken is what is the newest once it has its name; one that a newer writer has overtaken meanwhile is left behind.
    for (int64_t newest = -1; newest != epoch;) {
      std::vector<Claim> claims = list_claims(checkpoints);
      epoch = claims.empty() ? 1 : claims.back().epoch + 1;
      if (!io::link(temporary, checkpoints + "/" + claim_name(epoch))) continue;
      claims = list_claims(checkpoints);
      newest = claims.back().epoch;
    }
    io::remove_tree(temporary);
    io::sync_folder(checkpoints);
  } catch (const io::Failure&) {
    ::unlink(temporary.c_str());
    throw;
  }
  remove_meaningless(checkpoints);
  return epoch;
}

std::optional<Claim> given_up(const std::vector<Claim>& claims, int64_t epoch, int64_t step) {
  for (const Claim& c : claims) {
    if (c.epoch > epoch && c.resumed_from && *c.resumed_from < step) return c;
  }
  return std::nullopt;
}

void check_epoch(const std::string& checkpoints, int64_t epoch) {
  const std::vector<Claim> claims = list_claims(checkpoints);
  if (claims.empty() || claims.back().epoch <= epoch) return;
  throw io::Failure(fmt::format("commit to {} as epoch {}: epoch {} ({}) has taken over", checkpoints, epoch,
                                claims.back().epoch, claims.back().who),
                    ESTALE);
}

}  // namespace mm::checkpoint

// SPDX-License-Identifier: Apache-2.0
#include "agent/peers/credential.h"

#include <munge.h>

#include <cstdlib>
#include <ctime>
#include <memory>

#include "common/error.h"

namespace mm::agent {
namespace {

using Context = std::unique_ptr<munge_ctx, void (*)(munge_ctx_t)>;

Context make_context(const std::string& munge_socket) {
  Context context(::munge_ctx_create(), ::munge_ctx_destroy);
  if (!context) throw Error(exit_status::internal, "munge: out of memory");
  if (!munge_socket.empty()) ::munge_ctx_set(context.get(), MUNGE_OPT_SOCKET, munge_socket.c_str());
  return context;
}

Error failure(const char* what, const Context& context, munge_err_t error) {
  const char* detail = ::munge_ctx_strerror(context.get());
  return Error(exit_status::internal, std::string("munge: ") + what + ": " + (detail != nullptr ? detail : ::munge_strerror(error)));
}

}  // namespace

std::string encode_credential(std::string_view payload, const std::string& munge_socket, uid_t reader) {
  const Context context = make_context(munge_socket);
  ::munge_ctx_set(context.get(), MUNGE_OPT_UID_RESTRICTION, reader);
  char* text = nullptr;
  const munge_err_t error = ::munge_encode(&text, context.get(), payload.data(), static_cast<int>(payload.size()));
  const std::unique_ptr<char, void (*)(void*)> owned(text, std::free);
  if (error != EMUNGE_SUCCESS) throw failure("encode", context, error);
  return text;
}

Credential decode_credential(const std::string& credential, const std::string& munge_socket) {
  const Context context = make_context(munge_socket);
  void* payload = nullptr;
  int size = 0;
  gid_t gid = 0;
  Credential out;
  const munge_err_t error = ::munge_decode(credential.c_str(), context.get(), &payload, &size, &out.uid, &gid);
  const std::unique_ptr<void, void (*)(void*)> owned(payload, std::free);
  if (error != EMUNGE_SUCCESS) throw failure("decode", context, error);
  if (size > 0) out.payload.assign(static_cast<const char*>(payload), static_cast<size_t>(size));
  time_t at = 0;
  if (::munge_ctx_get(context.get(), MUNGE_OPT_ENCODE_TIME, &at) == EMUNGE_SUCCESS) out.encoded_at = at;
  return out;
}

}  // namespace mm::agent

// SPDX-License-Identifier: Apache-2.0
#include "agent/http/metrics_server.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <unistd.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/write.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <thread>

#include "common/error.h"

namespace mm::agent {
namespace {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;

unsigned short free_port() {
  asio::io_context io;
  return tcp::acceptor(io, {asio::ip::make_address("127.0.0.1"), 0}).local_endpoint().port();
}

// A certificate that vouches for itself.
TlsFiles make_certificate(const std::string& folder, const std::string& name) {
  const std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)> key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  const std::unique_ptr<X509, void (*)(X509*)> x(X509_new(), X509_free);
  ASN1_INTEGER_set(X509_get_serialNumber(x.get()), 1);
  X509_gmtime_adj(X509_getm_notBefore(x.get()), -3600);
  X509_gmtime_adj(X509_getm_notAfter(x.get()), 3600);
  X509_set_pubkey(x.get(), key.get());
  X509_NAME_add_entry_by_txt(X509_get_subject_name(x.get()), "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  X509_set_issuer_name(x.get(), X509_get_subject_name(x.get()));
  X509_sign(x.get(), key.get(), EVP_sha256());
  const TlsFiles out = {folder + "/" + name + ".crt", folder + "/" + name + ".key"};
  const std::unique_ptr<FILE, int (*)(FILE*)> c(std::fopen(out.certificate.c_str(), "w"), std::fclose), k(std::fopen(out.key.c_str(), "w"), std::fclose);
  PEM_write_X509(c.get(), x.get());
  PEM_write_PrivateKey(k.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  return out;
}

template <class Stream>
std::string get(Stream& stream, const std::string& request) {
  asio::write(stream, asio::buffer(request));
  std::string out;
  boost::system::error_code end;
  asio::read(stream, asio::dynamic_buffer(out), end);
  return out;
}

class MetricsServerTest : public ::testing::Test {
 protected:
  MetricsServerTest() {
    std::filesystem::create_directories(folder_);
    address_ = "127.0.0.1:" + std::to_string(port_);
  }
  ~MetricsServerTest() override { std::filesystem::remove_all(folder_); }
  // Runs `client` in a thread beside the loop.
  void with_loop(const std::function<void()>& client) {
    std::thread thread([&] {
      client();
      loop_.post([&] { loop_.stop(); });
    });
    loop_.io().restart();
    loop_.run();
    thread.join();
  }
  tcp::socket connect() {
    tcp::socket socket(io_);
    socket.connect({asio::ip::make_address("127.0.0.1"), port_});
    return socket;
  }
  // The answer, and the name on the certificate.
  std::pair<std::string, std::string> get_encrypted(const std::string& request, int newest = 0) {
    asio::ssl::context context(asio::ssl::context::tls_client);
    if (newest != 0) SSL_CTX_set_max_proto_version(context.native_handle(), newest);
    asio::ssl::stream<tcp::socket> stream(connect(), context);
    boost::system::error_code error;
    stream.handshake(asio::ssl::stream_base::client, error);
    if (error) return {"", error.message()};
    const std::unique_ptr<X509, void (*)(X509*)> x(SSL_get1_peer_certificate(stream.native_handle()), X509_free);
    char name[64] = {};
    X509_NAME_get_text_by_NID(X509_get_subject_name(x.get()), NID_commonName, name, sizeof name);
    return {get(stream, request), name};
  }

  const std::string folder_ = testing::TempDir() + "metrics-" + std::to_string(::getpid());
  const unsigned short port_ = free_port();
  std::string address_;
  Loop loop_;
  asio::io_context io_;
};

TEST_F(MetricsServerTest, AnswersOneReadOnlyRequest) {
  MetricsServer server(loop_, address_, {}, [] { return "mm_jobs 3\n"; });
  with_loop([&] {
    const auto ask = [&](const std::string& request) {
      tcp::socket socket = connect();
      return get(socket, request);
    };
    EXPECT_NE(ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").find("\r\n\r\nmm_jobs 3\n"), std::string::npos);
    EXPECT_NE(ask("GET /etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n").find("404"), std::string::npos);
    EXPECT_NE(ask("DELETE /metrics HTTP/1.1\r\nHost: x\r\n\r\n").find("405"), std::string::npos);
    EXPECT_EQ(ask("GET /metrics HTTP/1.1\r\nX: " + std::string(20000, 'x') + "\r\n\r\n").find("mm_jobs"), std::string::npos);
  });
  EXPECT_THROW(MetricsServer(loop_, "localhost", {}, [] { return ""; }), Error);
}

TEST_F(MetricsServerTest, SpeaksTlsAndTakesANewCertificate) {
  const TlsFiles first = make_certificate(folder_, "first"), second = make_certificate(folder_, "second");
  MetricsServer server(loop_, address_, first, [] { return "mm_jobs 3\n"; });
  const std::string request = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
  with_loop([&] {
    const auto [answer, name] = get_encrypted(request);
    EXPECT_NE(answer.find("\r\n\r\nmm_jobs 3\n"), std::string::npos) << answer;
    EXPECT_EQ(name, "first");
    EXPECT_EQ(get_encrypted(request, TLS1_1_VERSION).first, "") << "an old protocol";
    tcp::socket plain = connect();
    EXPECT_EQ(get(plain, request).find("mm_jobs"), std::string::npos) << "no answer in the clear";
  });
  EXPECT_THROW(server.renew({folder_ + "/none", first.key}), Error);
  EXPECT_THROW(server.renew({first.certificate, second.key}), Error) << "a key of another certificate";
  with_loop([&] { EXPECT_EQ(get_encrypted(request).second, "first"); });
  server.renew(second);
  with_loop([&] { EXPECT_EQ(get_encrypted(request).second, "second"); });
  EXPECT_THROW(MetricsServer(loop_, address_, {first.certificate, ""}, [] { return ""; }), Error);
}

}  // namespace
}  // namespace mm::agent

// SPDX-License-Identifier: Apache-2.0
#include "agent/http/metrics_server.h"

#include <fmt/format.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <type_traits>

#include "common/error.h"

namespace mm::agent {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
namespace ssl = asio::ssl;
using tcp = asio::ip::tcp;
using Plain = beast::tcp_stream;
using Encrypted = ssl::stream<beast::tcp_stream>;

constexpr std::chrono::seconds patience{5};
constexpr int most_connections = 16;
constexpr size_t largest_request = 8192;

std::shared_ptr<ssl::context> make_context(const TlsFiles& files) {
  if (files.certificate.empty() && files.key.empty()) return nullptr;
  if (files.certificate.empty() || files.key.empty()) throw usage_error("agent: metrics: a certificate needs its key, and a key its certificate");
  auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
  beast::error_code error;
  context->set_options(ssl::context::default_workarounds | ssl::context::no_tlsv1 | ssl::context::no_tlsv1_1, error);
  context->use_certificate_chain_file(files.certificate, error);
  if (error) throw usage_error(fmt::format("agent: metrics certificate {}: {}", files.certificate, error.message()));
  context->use_private_key_file(files.key, ssl::context::pem, error);
  if (error) throw usage_error(fmt::format("agent: metrics key {}: {}", files.key, error.message()));
  return context;
}

}  // namespace

struct MetricsServer::Core : std::enable_shared_from_this<Core> {
  Core(asio::io_context& io, std::function<std::string()> t) : acceptor(io), text(std::move(t)) {}

  template <class Stream>
  struct Connection : std::enable_shared_from_this<Connection<Stream>> {
    template <class... Arguments>
    Connection(std::shared_ptr<Core> s, Arguments&&... of_stream) : server(std::move(s)), stream(std::forward<Arguments>(of_stream)...) {
      ++server->connections;
    }
    ~Connection() { --server->connections; }

    void begin() {
      expire();
      if constexpr (std::is_same_v<Stream, Encrypted>)
        stream.async_handshake(ssl::stream_base::server, [self = this->shared_from_this()](beast::error_code error) {
          if (!error) self->read();
        });
      else
        read();
    }
    void expire() { beast::get_lowest_layer(stream).expires_after(patience); }
    void read() {
      parser.header_limit(largest_request);
      parser.body_limit(0);
      expire();
      http::async_read(stream, buffer, parser, [self = this->shared_from_this()](beast::error_code error, size_t) {
        if (!error) self->answer();
      });
    }
    void answer() {
      const auto& request = parser.get();
      response.version(request.version());
      response.keep_alive(false);
      response.set(http::field::server, "mm-agentd");
      if (request.method() != http::verb::get && request.method() != http::verb::head) {
        response.result(http::status::method_not_allowed);
        response.set(http::field::allow, "GET, HEAD");
      } else if (request.target() != "/metrics") {
        response.result(http::status::not_found);
        response.body() = "see /metrics\n";
      } else {
        response.set(http::field::content_type, "text/plain; version=0.0.4");
        response.body() = server->text();
      }
      response.prepare_payload();
      if (request.method() == http::verb::head) response.body().clear();
      expire();
      http::async_write(stream, response, [self = this->shared_from_this()](beast::error_code, size_t) { self->end(); });
    }
    void end() {
      if constexpr (std::is_same_v<Stream, Encrypted>) {
        expire();
        stream.async_shutdown([self = this->shared_from_this()](beast::error_code) {});
      } else {
        beast::error_code ignored;
        stream.socket().shutdown(tcp::socket::shutdown_send, ignored);
      }
    }

    std::shared_ptr<Core> server;
    Stream stream;
    beast::flat_buffer buffer{largest_request};
    http::request_parser<http::empty_body> parser;
    http::response<http::string_body> response;
  };

  void accept() {
    acceptor.async_accept([self = shared_from_this()](beast::error_code error, tcp::socket socket) {
      if (error == asio::error::operation_aborted || !self->acceptor.is_open()) return;
      if (!error && self->connections < most_connections) self->serve(std::move(socket));
      self->accept();
    });
  }
  void serve(tcp::socket socket) {
    if (!context) return std::make_shared<Connection<Plain>>(shared_from_this(), std::move(socket))->begin();
    std::make_shared<Connection<Encrypted>>(shared_from_this(), std::move(socket), *context)->begin();  // which holds what it needs of the context
  }

  tcp::acceptor acceptor;
  std::function<std::string()> text;
  std::shared_ptr<ssl::context> context;  // none: HTTP
  int connections = 0;
};

MetricsServer::MetricsServer(Loop& loop, const std::string& address, const TlsFiles& tls, std::function<std::string()> text) {
  core_ = std::make_shared<Core>(loop.io(), std::move(text));
  core_->context = make_context(tls);
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  const int port = colon == std::string::npos ? 0 : std::atoi(address.c_str() + colon + 1);
  beast::error_code error;
  const auto ip = asio::ip::make_address(host, error);
  if (error || port <= 0 || port > 65535) throw usage_error(fmt::format("agent: metrics address {}: is not ADDRESS:PORT", address));
  const tcp::endpoint endpoint(ip, static_cast<unsigned short>(port));
  core_->acceptor.open(endpoint.protocol(), error);
  if (!error) core_->acceptor.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) core_->acceptor.bind(endpoint, error);
  if (!error) core_->acceptor.listen(16, error);
  if (error) throw Error(exit_status::internal, fmt::format("agent: metrics on {}: {}", address, error.message()));
  core_->accept();
}

MetricsServer::~MetricsServer() {
  beast::error_code ignored;
  core_->acceptor.close(ignored);
}

void MetricsServer::renew(const TlsFiles& tls) {
  std::shared_ptr<ssl::context> fresh = make_context(tls);
  if (!fresh != !core_->context) return;
  core_->context = std::move(fresh);
}

}  // namespace mm::agent

// SPDX-License-Identifier: Apache-2.0
#include "agent/http/metrics_server.h"

#include <fmt/format.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

#include "common/error.h"
#include "common/log.h"

namespace mm::agent {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using tcp = asio::ip::tcp;

constexpr std::chrono::seconds patience{5};
constexpr int most_connections = 16;
constexpr size_t largest_request = 8192;

}  // namespace

struct MetricsServer::Core : std::enable_shared_from_this<Core> {
  Core(asio::io_context& io, std::function<std::string()> t) : acceptor(io), text(std::move(t)) {}

  struct Connection : std::enable_shared_from_this<Connection> {
    Connection(std::shared_ptr<Core> s, tcp::socket socket) : server(std::move(s)), stream(std::move(socket)) { ++server->connections; }
    ~Connection() { --server->connections; }
    std::shared_ptr<Core> server;
    beast::tcp_stream stream;
    beast::flat_buffer buffer{largest_request};
    http::request_parser<http::empty_body> parser;
    http::response<http::string_body> response;

    void read() {
      parser.header_limit(largest_request);
      parser.body_limit(0);
      stream.expires_after(patience);
      http::async_read(stream, buffer, parser, [self = shared_from_this()](beast::error_code error, size_t) {
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
      stream.expires_after(patience);
      http::async_write(stream, response, [self = shared_from_this()](beast::error_code, size_t) {
        beast::error_code ignored;
        self->stream.socket().shutdown(tcp::socket::shutdown_send, ignored);
      });
    }
  };

  void accept() {
    acceptor.async_accept([self = shared_from_this()](beast::error_code error, tcp::socket socket) {
      if (error == asio::error::operation_aborted || !self->acceptor.is_open()) return;
      if (!error && self->connections < most_connections) std::make_shared<Connection>(self, std::move(socket))->read();
      self->accept();
    });
  }

  tcp::acceptor acceptor;
  std::function<std::string()> text;
  int connections = 0;
};

MetricsServer::MetricsServer(Loop& loop, const std::string& address, std::function<std::string()> text) {
  core_ = std::make_shared<Core>(loop.io(), std::move(text));
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

}  // namespace mm::agent

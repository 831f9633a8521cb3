// SPDX-License-Identifier: Apache-2.0
#include "agent/incidents/history.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "agent/incidents/incident_json.h"
#include "common/error.h"
#include "common/log.h"

namespace mm::agent {
namespace {

constexpr const char* schema =
    "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;"
    "CREATE TABLE IF NOT EXISTS incidents(time REAL, id INTEGER, node TEXT, class TEXT, code TEXT, device TEXT, severity TEXT, action TEXT, count INTEGER,"
    " job TEXT, evidence TEXT, PRIMARY KEY(id, time, action));"
    "CREATE INDEX IF NOT EXISTS by_time ON incidents(time);";
constexpr double keep_seconds = 400.0 * 24 * 3600;

struct Finalize {
  void operator()(sqlite3_stmt* s) const { sqlite3_finalize(s); }
};
using Statement = std::unique_ptr<sqlite3_stmt, Finalize>;

void bind_text(sqlite3_stmt* s, int at, const std::string& text) { sqlite3_bind_text(s, at, text.data(), static_cast<int>(text.size()), SQLITE_TRANSIENT); }

std::string column(sqlite3_stmt* s, int at) {
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(s, at));
  return text == nullptr ? "" : text;
}

}  // namespace

// Used by one worker at a time: the pool has one thread.
struct History::Database {
  std::string path;
  sqlite3* handle = nullptr;
  bool complained = false;

  ~Database() { sqlite3_close(handle); }

  Error failure(const char* what) const {
    return Error(exit_status::internal, fmt::format("history: {} {}: {}", what, path, handle == nullptr ? "out of memory" : sqlite3_errmsg(handle)));
  }

  bool open() {
    if (handle != nullptr) return true;
    for (int attempt = 0; attempt < 2; ++attempt) {
      if (sqlite3_open_v2(path.c_str(), &handle, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr) == SQLITE_OK) {
        sqlite3_busy_timeout(handle, 1000);
        if (sqlite3_exec(handle, schema, nullptr, nullptr, nullptr) == SQLITE_OK) return true;
      }
      const int code = sqlite3_errcode(handle);
      if (!std::exchange(complained, true)) log::warn("{}", failure("open").what());
      sqlite3_close(handle);
      handle = nullptr;
      if (code != SQLITE_NOTADB && code != SQLITE_CORRUPT) return false;
      std::rename(path.c_str(), (path + ".bad").c_str());
    }
    return false;
  }

  Statement prepare(const char* sql) {
    sqlite3_stmt* out = nullptr;
    if (sqlite3_prepare_v2(handle, sql, -1, &out, nullptr) != SQLITE_OK) throw failure("prepare");
    return Statement(out);
  }

  void add(const Incident& i) {
    if (!open()) return;
    const Statement s = prepare("INSERT OR REPLACE INTO incidents VALUES(?,?,?,?,?,?,?,?,?,?,?)");
    sqlite3_bind_double(s.get(), 1, i.time);
    sqlite3_bind_int64(s.get(), 2, i.id);
    bind_text(s.get(), 3, i.node);
    bind_text(s.get(), 4, i.kind);
    bind_text(s.get(), 5, i.code);
    bind_text(s.get(), 6, i.device);
    bind_text(s.get(), 7, i.severity);
    bind_text(s.get(), 8, i.action);
    sqlite3_bind_int64(s.get(), 9, i.count);
    bind_text(s.get(), 10, i.job);
    bind_text(s.get(), 11, fmt::format("{}", fmt::join(i.evidence, "\n")));
    if (sqlite3_step(s.get()) != SQLITE_DONE) throw failure("write");
    const Statement old = prepare("DELETE FROM incidents WHERE time < ?");
    sqlite3_bind_double(old.get(), 1, i.time - keep_seconds);
    sqlite3_step(old.get());
  }
};

History::History(Loop& loop, const std::string& state_dir, const std::string& node) : loop_(loop), database_(std::make_shared<Database>()) {
  database_->path = fmt::format("{}/history-{}.db", state_dir, node);
}
History::~History() = default;

void History::add(const Incident& incident) {
  loop_.work(Loop::Pool::disk, [database = database_, incident]() -> Loop::Action {
    database->add(incident);
    return {};
  });
}

void History::ask(double since, const std::string& device, int most, std::function<void(const std::string&)> done) {
  loop_.work(Loop::Pool::disk, [database = database_, since, device, most, done]() -> Loop::Action {
    nlohmann::ordered_json out = nlohmann::ordered_json::array();
    if (database->open()) {
      const Statement s = database->prepare(
          "SELECT time,id,node,class,code,device,severity,action,count,job,evidence FROM incidents WHERE time >= ? AND (?='' OR device=?) ORDER BY time DESC LIMIT ?");
      sqlite3_bind_double(s.get(), 1, since);
      bind_text(s.get(), 2, device);
      bind_text(s.get(), 3, device);
      sqlite3_bind_int(s.get(), 4, most);
      while (sqlite3_step(s.get()) == SQLITE_ROW) {
        Incident i = incident_from_message({{"EVIDENCE", column(s.get(), 10)}});
        i.time = sqlite3_column_double(s.get(), 0);
        i.id = sqlite3_column_int64(s.get(), 1);
        i.node = column(s.get(), 2);
        i.kind = column(s.get(), 3);
        i.code = column(s.get(), 4);
        i.device = column(s.get(), 5);
        i.severity = column(s.get(), 6);
        i.action = column(s.get(), 7);
        i.count = sqlite3_column_int64(s.get(), 8);
        i.job = column(s.get(), 9);
        out.push_back(json_from_incident(i));
      }
    }
    return [done, text = out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)] { done(text); };
  });
}

void History::count_hardware(double since, std::function<void(int, const std::string&)> done) {
  loop_.work(Loop::Pool::disk, [database = database_, since, done]() -> Loop::Action {
    int count = 0;
    std::string parts;
    if (database->open()) {
      const Statement s = database->prepare(
          "SELECT class||' '||device, COUNT(DISTINCT id) FROM incidents WHERE time >= ? AND id > 0 AND class NOT IN ('app','peer','slurm') AND code NOT LIKE 'predict%'"
          " AND action IN ('restart','requeue','drain') GROUP BY 1 ORDER BY 2 DESC");
      sqlite3_bind_double(s.get(), 1, since);
      while (sqlite3_step(s.get()) == SQLITE_ROW) {
        count += sqlite3_column_int(s.get(), 1);
        parts += fmt::format("{}{} {} times", parts.empty() ? "" : ", ", column(s.get(), 0), sqlite3_column_int(s.get(), 1));
      }
    }
    return [done, count, parts] { done(count, parts); };
  });
}

}  // namespace mm::agent

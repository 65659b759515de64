// Package storage is SQL for everything that must outlive the process: opening a database, its connections, migrations, retries,
// classes of errors, guards and change notices. It knows no domain: packages that own tables stand on it.
//
// Three drivers, one contract:
//
//   - sqlite: one file, for one machine. Any number of handles and processes may share it.
//   - postgres: a server, for more than one machine.
//   - memory: an SQLite file in a private temporary directory, removed by [DB.Close]. Nothing in it is durable.
//
// A [DB] has two sides. [DB.Read] is a pool for queries; on SQLite it cannot write. [DB.Write] is the [WriteDB] for everything that
// changes rows; on SQLite it is one connection whose transactions take the write lock when they begin, so that none can fail on the way
// from reading to writing. Writing transactions go through [RunInTx], which repeats those that lost to another.
package storage

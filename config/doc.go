// Package config is the gateway's configuration file: its types, defaults and
// rules, and a loader that reports every problem at once with its path, line
// and column (protocol §8).
//
// Parse turns bytes into a Config in three steps: the JSON becomes a small tree
// that knows its positions; one table of members binds the tree and the
// environment to the types; rules that look at several members run last. The
// same table prints the effective configuration, names what a reload may
// change, and is the source of the written reference, so that none of them can
// disagree.
package config

// Package dsn tells connection strings from paths of files, for whoever takes either as a data source.
package dsn

import "regexp"

// connectionString matches a scheme as of a URL, or one of the settings that a keyword=value string begins with.
var connectionString = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*://|^\s*(host|hostaddr|dbname|user|port|service)\s*=`)

// IsConnectionString reports whether s is a connection string, as a URL or as keyword=value pairs, and not the path of a file. Such a
// string may hold a password: do not repeat it.
func IsConnectionString(s string) bool { return connectionString.MatchString(s) }

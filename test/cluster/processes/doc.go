// Package processes runs a cluster of real conductord processes and injects faults.
//
// The daemons are built with faults: see Build. A Lab is a set of namespaces for them: a
// separate network, whose cuts affect nothing else, and separate mounts. Each node has a
// network namespace, and a small ext4 file system for its data, which can be filled and can
// lose unsynced writes. All of it disappears when the harness's process ends, even by a kill.
//
// A Lab needs Linux and root; otherwise Supported returns the reason.
package processes

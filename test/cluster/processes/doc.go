// Package processes runs a cluster of real conductord processes under faults.
//
// The daemons are built with faults: see Build. A Lab is the namespaces in
// which they run: a network of their own, whose cuts touch nothing else, and
// mounts of their own. Each node has a network namespace, and a small ext4 file
// system for its data that can be filled and that can lose what was not synced.
// All of it goes when the harness's process ends, however that ends.
//
// Linux and root are assumed; without them Supported says why not.
package processes

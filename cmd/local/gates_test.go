package local_test

import (
	"io"
	"net"
	"testing"

	"github.com/conductord/conductord/cmd/local"
	"github.com/conductord/conductord/config"
)

// A gate forwards a node's messages to another node, except while one of them is cut off.
func TestCutOff(t *testing.T) {
	inner := map[string]string{}
	cluster, err := local.New(local.Options{
		Binary: "none", Dir: t.TempDir(), Gates: true,
		Configure: func(c *config.Config) { inner[c.Node] = c.RaftListen },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	listener, err := net.Listen("tcp", inner["node2"])
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	go func() { // an echo; ends with the listener
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(conn, conn) }()
		}
	}()
	const hello = `CDR1R..{"name":"node1"}`
	node2, _ := cluster.Node("node2")
	answered := func(conn net.Conn) bool {
		if _, err := io.WriteString(conn, hello); err != nil {
			return false
		}
		_, err := io.ReadFull(conn, make([]byte, len(hello)))
		return err == nil
	}
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", node2.Raft)
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	before := dial()
	if !answered(before) {
		t.Fatal("no answer through an open gate")
	}
	for _, node := range []string{"node1", "node2"} {
		cluster.CutOff(node, true)
		if answered(before) || answered(dial()) {
			t.Errorf("%s is cut off, and there is an answer", node)
		}
		cluster.CutOff("node3", true) // not a node of the cluster: no effect
		cluster.CutOff(node, false)
		if before = dial(); !answered(before) {
			t.Errorf("%s is back, and there is no answer", node)
		}
	}
}

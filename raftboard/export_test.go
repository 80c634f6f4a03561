package raftboard

// Waiting tells how many updates and endings wait for their call.
func Waiting(c *Client) int {
	c.ordered.mu.Lock()
	defer c.ordered.mu.Unlock()
	return len(c.ordered.queue)
}

package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// Bounds of waiting for one component, generous for a machine that is busy with something else.
const (
	readyWithin = 90 * time.Second
	endWithin   = 15 * time.Second

	pollNodes = 200 * time.Millisecond

	// settle is how long kwok may take to see a lease that it has just written.
	settle = 500 * time.Millisecond
)

// Component is one process of a cluster.
type Component struct {
	name    string
	cluster *Cluster

	mu      sync.Mutex
	process process
	ended   <-chan struct{} // nil when it is no child of this process
}

// PID is the number of its process, 0 before the first start.
func (c *Component) PID() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.process.PID
}

// Running says whether its process is there.
func (c *Component) Running() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.process.alive()
}

// Memory is its resident memory in bytes, 0 when it does not run.
func (c *Component) Memory() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.process.memory()
}

// Processor is how much time of processors it has taken since its last start, in steps of 10 ms; 0 when it does not run.
func (c *Component) Processor() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.process.processor()
}

// Log is the path of what it prints, from all its starts.
func (c *Component) Log() string { return c.cluster.settings.path("log", c.name+".log") }

// Start starts it and waits until it serves. It is an error when it runs already.
func (c *Component) Start(ctx context.Context) error {
	var free []string
	if c.name == Kwok && !c.Running() {
		var err error
		if free, err = c.cluster.freeLeases(ctx); err != nil {
			return err
		}
	}
	if err := c.launch(); err != nil {
		return err
	}
	if err := c.Ready(ctx); err != nil || len(free) == 0 {
		return err
	}
	return c.cluster.waitLeases(ctx, free)
}

// Kill kills it as a crash would, and waits until it is gone.
func (c *Component) Kill(ctx context.Context) error { return c.end(ctx, syscall.SIGKILL) }

// Stop has it end by itself, and kills it when it does not within some seconds.
func (c *Component) Stop(ctx context.Context) error {
	if err := c.end(ctx, syscall.SIGTERM); err == nil || ctx.Err() != nil {
		return err
	}
	return c.Kill(ctx)
}

// Restart stops and starts it.
func (c *Component) Restart(ctx context.Context) error {
	if err := c.Stop(ctx); err != nil {
		return err
	}
	return c.Start(ctx)
}

func (c *Component) end(ctx context.Context, s syscall.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.process.signal(s); err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	if err := c.process.end(ctx, endWithin); err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	if c.ended != nil {
		<-c.ended
	}
	return nil
}

// launch starts it and writes down its process.
func (c *Component) launch() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process.alive() {
		return fmt.Errorf("%s runs already, as process %d", c.name, c.process.PID)
	}
	s := c.cluster.settings
	line, err := s.command(c.name)
	if err != nil {
		return err
	}
	cmd := exec.Command(s.Binaries.Path(line.program), line.arguments...)
	cmd.Dir = s.Dir
	cmd.Env = []string{"PATH=" + string(s.Binaries) + ":" + searchPath(), "HOME=" + s.Dir, mark + "=" + s.Dir}
	c.process, c.ended, err = c.cluster.spawner.start(cmd, c.Log(), c.cluster.detached)
	if err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	return c.cluster.note(c.name, c.process)
}

// searchPath is where components find runc and what runc needs.
func searchPath() string {
	if path := os.Getenv("PATH"); path != "" {
		return path + ":/usr/sbin:/sbin"
	}
	return "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
}

// Serves asks it once, and says what keeps it from serving.
func (c *Component) Serves(ctx context.Context) error { return c.cluster.probe(ctx, c.name) }

// Ready waits until it serves. When it ends instead, the error has the last lines that it printed.
func (c *Component) Ready(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	for {
		err := c.Serves(bounded)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w", c.name, ctx.Err())
		}
		if !c.Running() {
			return fmt.Errorf("%s has ended: %s", c.name, c.last())
		}
		if pause(bounded, 50*time.Millisecond) != nil && ctx.Err() == nil {
			return fmt.Errorf("%s is not ready after %s: %w; it says: %s", c.name, readyWithin, err, c.last())
		}
	}
}

// last are the last lines of its log.
func (c *Component) last() string {
	text, err := os.ReadFile(c.Log())
	if err != nil {
		return err.Error()
	}
	return tail(text, 5)
}

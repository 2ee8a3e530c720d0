package agent

import (
	"os"
	"strings"
)

// Container is the container of a cluster that a job is. Its processes may be of any user, in any pid namespace: that the
// allocation's folder is mounted into it alone is who they are. The agent's folder must therefore be closed to all other users.
type Container struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	PodUID    string `json:"pod_uid"`
	Name      string `json:"name,omitempty"`
	Claim     string `json:"claim"` // UID of what it was allocated for
}

// has says whether a control group is of the container's Pod. The kubelet names those of Pods after their UIDs, with underscores
// where systemd makes them.
func (c *Container) has(cgroup string) bool {
	return c.PodUID != "" && (strings.Contains(cgroup, c.PodUID) || strings.Contains(cgroup, strings.ReplaceAll(c.PodUID, "-", "_")))
}

// admits says whether processes of a user may connect.
func (al *allocation) admits(uid int) bool {
	return al.spec.Container != nil || uid == al.spec.UID || uid == 0
}

// modes are those of the allocation's folder and of the socket in it.
func (al *allocation) modes() (folder, socket os.FileMode) {
	if al.spec.Container != nil {
		return 0o711, 0o666
	}
	return 0o700, 0o600
}

// shares says whether a process of the allocation has exactly this control group: two containers of a Pod have different ones.
func (al *allocation) shares(cgroup string) bool {
	for _, s := range al.sessions {
		if s.peer.pid > 0 && cgroupOf(s.peer.pid) == cgroup {
			return true
		}
	}
	return false
}

// private says whether nobody but root and the agent's own user can pass through its folder.
func (a *Agent) private() bool {
	info, err := os.Stat(a.o.Dir)
	return err == nil && info.Mode().Perm()&0o077 == 0
}

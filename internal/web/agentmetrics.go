package web

import (
	"log/slog"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// agentFigures are the agent's series, and whether it answers. What it counts (tokens, memory) is told by it alone; a name of
// the daemon's own is left out.
func agentFigures(b Box, log *slog.Logger) prometheus.Gatherer {
	own := map[string]bool{}
	described := make(chan *prometheus.Desc)
	go func() {
		defer close(described)
		(&figures{}).Describe(described)
	}()
	for d := range described {
		own[nameOf(d)] = true
	}
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		up := 1.0
		text, err := b.AgentMetrics()
		var families map[string]*dto.MetricFamily
		if err == nil {
			parser := expfmt.NewTextParser(model.LegacyValidation)
			families, err = parser.TextToMetricFamilies(strings.NewReader(text))
		}
		if err != nil {
			log.Warn("web", "agent", err)
			up = 0
		}
		list := []*dto.MetricFamily{agentUp(up)}
		for name, f := range families {
			if !own[name] && len(f.Metric) > 0 {
				list = append(list, f)
			}
		}
		slices.SortFunc(list, func(a, b *dto.MetricFamily) int { return strings.Compare(a.GetName(), b.GetName()) })
		return list, nil
	})
}

// nameOf is the name of a series. Desc tells it in its text only.
func nameOf(d *prometheus.Desc) string {
	_, after, _ := strings.Cut(d.String(), `fqName: "`)
	name, _, _ := strings.Cut(after, `"`)
	return name
}

// agentUp is the one series about the agent that it cannot tell itself.
func agentUp(value float64) *dto.MetricFamily {
	name, help, kind := "weft_agent_up", "1 if the agent answers: it passes the tokens of the GPUs on and lends their memory.", dto.MetricType_GAUGE
	return &dto.MetricFamily{Name: &name, Help: &help, Type: &kind, Metric: []*dto.Metric{{Gauge: &dto.Gauge{Value: &value}}}}
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/tsdb"
	"go.yaml.in/yaml/v2"
)

// scrape is what came of asking a target for its page: the page, no answer, or the target is no longer there.
type scrape struct {
	At          float64           `json:"at"`
	Labels      map[string]string `json:"labels"`  // of the target, as discovered or as they are
	Relabel     json.RawMessage   `json:"relabel"` // relabel_configs of the scrape configuration
	HonorLabels bool              `json:"honor_labels"`
	State       string            `json:"state"` // "": answered, "down", "gone"
	ContentType string            `json:"content_type"`
	Body        string            `json:"body"`
}

// targets remembers each target's series, which end where a later page lacks them.
type targets map[string]map[string]labels.Labels

// stored keeps the scrapes, which are in order of time.
func stored(scrapes []scrape, folder string) (*tsdb.DB, error) {
	options := tsdb.DefaultOptions()
	options.MinBlockDuration = int64(24 * time.Hour / time.Millisecond)
	options.MaxBlockDuration = options.MinBlockDuration
	db, err := tsdb.Open(folder, nil, nil, options, tsdb.NewDBStats())
	if err != nil {
		return nil, err
	}
	known := targets{}
	for _, one := range scrapes {
		if err := known.store(db, one); err != nil {
			db.Close()
			return nil, err
		}
	}
	return db, nil
}

// target returns the labels of all series of a target; none: the configuration does not want it.
func (one scrape) target() (labels.Labels, error) {
	builder := labels.NewBuilder(labels.FromMap(one.Labels))
	var configs []*relabel.Config
	if err := yaml.Unmarshal(one.Relabel, &configs); err != nil { // of YAML they have defaults, and JSON is YAML
		return labels.EmptyLabels(), err
	}
	for _, config := range configs {
		if err := config.Validate(model.UTF8Validation); err != nil {
			return labels.EmptyLabels(), err
		}
	}
	if !relabel.ProcessBuilder(builder, configs...) {
		return labels.EmptyLabels(), nil
	}
	builder.Range(func(label labels.Label) {
		if strings.HasPrefix(label.Name, model.ReservedLabelPrefix) {
			builder.Del(label.Name)
		}
	})
	return builder.Labels(), nil
}

// store keeps a page's samples, as a scrape of its target at that time would.
func (known targets) store(db *tsdb.DB, one scrape) error {
	target, err := one.target()
	if err != nil || target.IsEmpty() {
		return err
	}
	found, appender := map[string]labels.Labels{}, db.Appender(context.Background())
	keep := func(series labels.Labels, value float64) error {
		found[series.String()] = series
		_, err := appender.Append(0, series, milliseconds(one.At), value)
		return err
	}
	if one.State == "" {
		if err := one.read(target, keep); err != nil {
			return err
		}
	}
	if one.State != "gone" {
		up := labels.NewBuilder(target)
		up.Set(labels.MetricName, "up")
		works := 0.0
		if one.State == "" {
			works = 1
		}
		if err := keep(up.Labels(), works); err != nil {
			return err
		}
	}
	stale := math.Float64frombits(value.StaleNaN)
	for name, series := range known[target.String()] {
		if _, still := found[name]; still {
			continue
		}
		if _, err := appender.Append(0, series, milliseconds(one.At), stale); err != nil {
			return err
		}
	}
	known[target.String()] = found
	return appender.Commit()
}

// read passes on each sample of the page, with the labels of its target.
func (one scrape) read(target labels.Labels, keep func(labels.Labels, float64) error) error {
	page, err := textparse.New([]byte(one.Body), one.ContentType, labels.NewSymbolTable(), textparse.ParserOptions{})
	if err != nil {
		return err
	}
	for {
		entry, err := page.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if entry != textparse.EntrySeries {
			continue
		}
		_, _, value := page.Series()
		var exposed labels.Labels
		page.Labels(&exposed)
		builder := labels.NewBuilder(exposed)
		target.Range(func(label labels.Label) {
			own := exposed.Get(label.Name)
			if own != "" && one.HonorLabels {
				return
			}
			if own != "" {
				builder.Set(model.ExportedLabelPrefix+label.Name, own)
			}
			builder.Set(label.Name, label.Value)
		})
		if err := keep(builder.Labels(), value); err != nil {
			return err
		}
	}
}

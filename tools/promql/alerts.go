package main

import (
	"context"
	"log/slog"
	"net/url"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/rules"
)

// rulesGroup is a group of a PrometheusRule.
type rulesGroup struct {
	Name  string `json:"name"`
	Rules []struct {
		Alert       string            `json:"alert"`
		Expr        string            `json:"expr"`
		For         string            `json:"for"`
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	} `json:"rules"`
}

// firing is an alert as Prometheus sends it, at the moment at which it begins to fire.
type firing struct {
	At          float64           `json:"at"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// play evaluates each rule at every step, and tells which alerts fire when.
func play(asked question, folder string) ([]firing, error) {
	db, err := stored(asked.Scrapes, folder)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	language, engine := engines()
	query := rules.EngineQueryFunc(engine, db)
	found := []firing{}
	for _, group := range asked.Groups {
		for _, each := range group.Rules {
			expression, err := language.ParseExpr(each.Expr)
			if err != nil {
				return nil, err
			}
			var hold model.Duration
			if each.For != "" {
				if hold, err = model.ParseDuration(each.For); err != nil {
					return nil, err
				}
			}
			rule := rules.NewAlertingRule(
				each.Alert, expression, time.Duration(hold), 0, labels.FromMap(each.Labels),
				labels.FromMap(each.Annotations), labels.EmptyLabels(), "", true, slog.Default(),
			)
			told, err := course(rule, query, asked)
			if err != nil {
				return nil, err
			}
			found = append(found, told...)
		}
	}
	return found, nil
}

func course(rule *rules.AlertingRule, query rules.QueryFunc, asked question) ([]firing, error) {
	var found []firing
	before := map[string]bool{}
	for at := 0.0; at <= asked.At; at += asked.Step {
		moment := time.UnixMilli(milliseconds(at))
		if _, err := rule.Eval(context.Background(), 0, moment, query, &url.URL{}, 0); err != nil {
			return nil, err
		}
		now := map[string]bool{}
		for _, alert := range rule.ActiveAlerts() {
			if alert.State != rules.StateFiring {
				continue
			}
			name := alert.Labels.String()
			now[name] = true
			if !before[name] {
				found = append(found, firing{at, alert.Labels.Map(), alert.Annotations.Map()})
			}
		}
		before = now
	}
	return found, nil
}

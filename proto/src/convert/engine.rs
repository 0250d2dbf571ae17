//! The engine: trying it, and steering one that an agent launches.

use common::dialect::UnknownDialect;
use common::fleet::{
    EngineCard, EngineOrder, EngineStage, EngineState, Observation, ProbeDepth, TargetCheck, TargetReport,
};
use common::ids::Nanos;
use common::plan::BaseUrlError;
use common::trace::FailureKind;

use super::limits::{MAX_CARD_TEXT, MAX_JSON, MAX_MODELS, MAX_NAME, MAX_TEXT, at_most, shown, text};
use super::{WireError, required, run_id};
use crate::v1;

impl v1::TargetReport {
    /// The answer to the check of this number.
    #[must_use]
    pub fn answer(id: u64, r: &TargetReport) -> Self {
        let (failure_kind, failure_message) = match &r.failure {
            None => (None, String::new()),
            Some((kind, message)) => (Some(kind.name().to_owned()), shown(message, MAX_CARD_TEXT)),
        };
        Self {
            id,
            models: r.models.iter().filter(|m| m.len() <= MAX_NAME).take(MAX_MODELS).cloned().collect(),
            failure_kind,
            failure_message,
            error_body: shown(&r.error_body, MAX_CARD_TEXT),
            http_status: r.http_status.map(u32::from),
            ttft_ns: r.ttft.map(|n| n.0),
            output_tokens: r.output_tokens,
            probe_json: r.probe.as_ref().map(|p| serde_json::json!(p).to_string()),
        }
    }
}

impl TryFrom<v1::TargetReport> for TargetReport {
    type Error = WireError;
    fn try_from(r: v1::TargetReport) -> Result<Self, WireError> {
        let fail = |field, problem: &str| WireError::new("TargetReport", field, problem);
        let failure = match r.failure_kind {
            None => None,
            Some(name) => {
                let kind = FailureKind::ALL.iter().find(|k| k.name() == name);
                let message = text(r.failure_message, MAX_TEXT, "TargetReport", "failure_message")?;
                Some((*kind.ok_or_else(|| fail("failure_kind", "unknown"))?, message))
            }
        };
        let http_status = match r.http_status {
            None => None,
            Some(s) => Some(u16::try_from(s).map_err(|_| fail("http_status", "not a status"))?),
        };
        at_most(&r.models, MAX_MODELS, "TargetReport", "models")?;
        let models = r.models.into_iter().map(|m| text(m, MAX_NAME, "TargetReport", "models"));
        Ok(Self {
            models: models.collect::<Result<_, _>>()?,
            failure,
            error_body: text(r.error_body, MAX_TEXT, "TargetReport", "error_body")?,
            http_status,
            ttft: r.ttft_ns.map(Nanos),
            output_tokens: r.output_tokens,
            probe: match r.probe_json {
                None => None,
                Some(json) if json.len() > MAX_JSON => {
                    return Err(fail("probe_json", &format!("{} bytes, more than {MAX_JSON}", json.len())));
                }
                Some(json) => {
                    Some(serde_json::from_str(&json).map_err(|e| fail("probe_json", &e.to_string()))?)
                }
            },
        })
    }
}

impl From<&TargetCheck> for v1::CheckTarget {
    fn from(c: &TargetCheck) -> Self {
        let probe = match c.probe {
            ProbeDepth::None => v1::Probe::None,
            ProbeDepth::Brief => v1::Probe::Brief,
            ProbeDepth::Full => v1::Probe::Full,
            ProbeDepth::Look => v1::Probe::Look,
        };
        Self {
            id: c.id,
            target: Some((&c.target).into()),
            row_json: c.row_json.clone(),
            probe: probe.into(),
            find_dialect: c.find_dialect,
        }
    }
}

impl TryFrom<v1::CheckTarget> for TargetCheck {
    type Error = WireError;
    fn try_from(c: v1::CheckTarget) -> Result<Self, WireError> {
        let probe = match c.probe() {
            v1::Probe::None => ProbeDepth::None,
            v1::Probe::Brief => ProbeDepth::Brief,
            v1::Probe::Full => ProbeDepth::Full,
            v1::Probe::Look => ProbeDepth::Look,
        };
        let target = c.target.ok_or_else(|| WireError::new("CheckTarget", "target", "missing"))?;
        let target = target.try_into()?;
        Ok(Self { id: c.id, target, row_json: c.row_json, probe, find_dialect: c.find_dialect })
    }
}

impl From<&EngineCard> for v1::EngineCard {
    fn from(c: &EngineCard) -> Self {
        Self { name: c.name.clone(), dialect: c.dialect.name().to_owned(), base_url: c.base_url.to_string() }
    }
}

impl TryFrom<v1::EngineCard> for EngineCard {
    type Error = WireError;
    fn try_from(c: v1::EngineCard) -> Result<Self, WireError> {
        let fail = |field, problem: String| WireError::new("EngineCard", field, problem);
        Ok(Self {
            name: text(c.name, MAX_NAME, "EngineCard", "name")?,
            dialect: c.dialect.parse().map_err(|e: UnknownDialect| fail("dialect", e.to_string()))?,
            base_url: c.base_url.parse().map_err(|e: BaseUrlError| fail("base_url", e.to_string()))?,
        })
    }
}

impl v1::EngineOrder {
    /// The order with its id.
    #[must_use]
    pub fn numbered(id: u64, order: &EngineOrder) -> Self {
        use v1::engine_order::{Describe, EmptyCache, Restart, What};
        let what = match order {
            EngineOrder::Restart => What::Restart(Restart {}),
            EngineOrder::EmptyCache(target) => {
                What::EmptyCache(EmptyCache { target: Some((&**target).into()) })
            }
            EngineOrder::Describe => What::Describe(Describe {}),
        };
        Self { id, what: Some(what) }
    }
}

impl TryFrom<v1::EngineOrder> for (u64, EngineOrder) {
    type Error = WireError;
    fn try_from(o: v1::EngineOrder) -> Result<Self, WireError> {
        use v1::engine_order::What;
        let order = match required(o.what, "EngineOrder", "what")? {
            What::Restart(_) => EngineOrder::Restart,
            What::EmptyCache(e) => {
                let target = required(e.target, "EngineOrder", "empty_cache.target")?;
                EngineOrder::EmptyCache(Box::new(target.try_into()?))
            }
            What::Describe(_) => EngineOrder::Describe,
        };
        Ok((o.id, order))
    }
}

impl From<&EngineState> for v1::EngineState {
    fn from(s: &EngineState) -> Self {
        use v1::engine_state::Stage;
        let stage = match s.stage {
            EngineStage::Starting => Stage::Starting,
            EngineStage::Ready => Stage::Ready,
            EngineStage::Done => Stage::Done,
            EngineStage::Failed => Stage::Failed,
            EngineStage::Died => Stage::Died,
        };
        Self {
            order: s.order,
            stage: stage.into(),
            message: shown(&s.message, MAX_CARD_TEXT * 4),
            record_json: s.record.as_ref().map(ToString::to_string),
        }
    }
}

impl TryFrom<v1::EngineState> for EngineState {
    type Error = WireError;
    fn try_from(s: v1::EngineState) -> Result<Self, WireError> {
        use v1::engine_state::Stage;
        let stage = match s.stage() {
            Stage::Starting => EngineStage::Starting,
            Stage::Ready => EngineStage::Ready,
            Stage::Done => EngineStage::Done,
            Stage::Failed => EngineStage::Failed,
            Stage::Died => EngineStage::Died,
            Stage::Unspecified => return Err(WireError::new("EngineState", "stage", "missing")),
        };
        if let Some(json) = s.record_json.as_ref().filter(|json| json.len() > MAX_JSON) {
            let problem = format!("{} bytes, more than {MAX_JSON}", json.len());
            return Err(WireError::new("EngineState", "record_json", problem));
        }
        let message = text(s.message, MAX_TEXT, "EngineState", "message")?;
        let record = s.record_json.map(|json| serde_json::from_str(&json)).transpose();
        let record = record.map_err(|e| WireError::new("EngineState", "record_json", e))?;
        Ok(Self { order: s.order, stage, message, record })
    }
}

impl From<&Observation> for v1::Observe {
    fn from(o: &Observation) -> Self {
        let Observation { run, engine, metrics, find_dialect } = o;
        let engine = engine.as_ref().map(Into::into);
        Self { run_id: run.to_string(), engine, metrics: *metrics, find_dialect: *find_dialect }
    }
}

impl TryFrom<v1::Observe> for Observation {
    type Error = WireError;
    fn try_from(o: v1::Observe) -> Result<Self, WireError> {
        let engine = o.engine.map(TryInto::try_into).transpose()?;
        let run = run_id(&o.run_id, "Observe")?;
        Ok(Self { run, engine, metrics: o.metrics, find_dialect: o.find_dialect })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_and_cards_come_back_as_they_went() {
        let state = EngineState {
            order: 7,
            stage: EngineStage::Died,
            message: "exit status 1".into(),
            record: Some(serde_json::json!({"name": "vllm"})),
        };
        assert_eq!(EngineState::try_from(v1::EngineState::from(&state)), Ok(state));
        let dialect = "vllm".parse().unwrap();
        let card =
            EngineCard { name: "mine".into(), dialect, base_url: "http://127.0.0.1:8000".parse().unwrap() };
        assert_eq!(EngineCard::try_from(v1::EngineCard::from(&card)), Ok(card));
        let order = v1::EngineOrder::numbered(3, &EngineOrder::Restart);
        assert_eq!(<(u64, EngineOrder)>::try_from(order), Ok((3, EngineOrder::Restart)));
    }

    #[test]
    fn what_is_missing_is_named() {
        let said = |e: WireError| format!("{}.{}", e.message, e.field);
        let stage = v1::EngineState { stage: 0, ..v1::EngineState::default() };
        assert_eq!(said(EngineState::try_from(stage).unwrap_err()), "EngineState.stage");
        let order = v1::EngineOrder { id: 1, what: None };
        assert_eq!(said(<(u64, EngineOrder)>::try_from(order).unwrap_err()), "EngineOrder.what");
        let card = v1::EngineCard { dialect: "x".into(), ..v1::EngineCard::default() };
        assert_eq!(said(EngineCard::try_from(card).unwrap_err()), "EngineCard.dialect");
    }
}

# SPDX-License-Identifier: Apache-2.0
# make install / uninstall: one list of what goes where, used by both.

slurm_plugin_dir ?= $(PREFIX)/lib/slurm
installed = \
  $(foreach p,$(PROGRAMS),755:$(p):$(if $(filter %/mm-agentd,$(p)),$(PREFIX)/sbin,$(PREFIX)/bin)/$(notdir $(p))) \
  755:$(BUILD)/spank_mm_train.so:$(slurm_plugin_dir)/spank_mm_train.so \
  $(foreach m,$(wildcard man/*.[1-8]),644:$(m):$(PREFIX)/share/man/man$(subst .,,$(suffix $(m)))/$(notdir $(m))) \
  $(foreach e,$(wildcard etc/examples/*.toml etc/examples/*.sbatch etc/examples/*.py etc/examples/*/*.json),644:$(e):$(PREFIX)/share/mm-train/examples/$(e:etc/examples/%=%)) \
  644:etc/dashboards/prometheus-rules.yml:$(PREFIX)/share/mm-train/prometheus-rules.yml \
  644:etc/mm-train.conf:$(SYSCONFDIR)/mm-train/mm-train.conf \
  644:etc/plugstack.conf.d/mm-train.conf:$(SYSCONFDIR)/slurm/plugstack.conf.d/mm-train.conf \
  644:etc/systemd/mm-agentd.service:$(PREFIX)/lib/systemd/system/mm-agentd.service

.PHONY: install uninstall
install: all
	@for entry in $(installed); do \
	  IFS=: read -r mode from to <<<"$$entry"; \
	  case $$to in $(SYSCONFDIR)/*) if [ -e "$(DESTDIR)$$to" ]; then echo "  KEEP  $(DESTDIR)$$to"; continue; fi;; esac; \
	  echo "  INST  $(DESTDIR)$$to"; \
	  case $$from in \
	    etc/plugstack.conf.d/*|etc/systemd/*) mkdir -p "$(DESTDIR)$$(dirname $$to)"; \
	      sed 's#@PREFIX@#$(PREFIX)#g; s#@SYSCONFDIR@#$(SYSCONFDIR)#g; s#@PLUGINDIR@#$(slurm_plugin_dir)#g' "$$from" >"$(DESTDIR)$$to"; chmod $$mode "$(DESTDIR)$$to";; \
	    *) install -D -m $$mode "$$from" "$(DESTDIR)$$to";; \
	  esac; \
	done

# Configuration that an admin may have edited stays.
uninstall:
	@for entry in $(installed); do \
	  to=$${entry##*:}; \
	  case $$to in $(SYSCONFDIR)/*) continue;; esac; \
	  echo "  RM    $(DESTDIR)$$to"; rm -f "$(DESTDIR)$$to"; \
	done
